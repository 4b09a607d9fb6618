"""What the library claims, measured: one small file a claim, ratios taken side by side in one run."""
