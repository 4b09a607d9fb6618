"""The experiment of `manylens demo`, and the page that shows it."""
