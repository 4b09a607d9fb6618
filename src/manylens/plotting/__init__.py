"""Display classes in scikit-learn's pattern; matplotlib is imported when a figure is drawn."""
