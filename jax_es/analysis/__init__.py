"""What runs say: curves (runs → numbers), figures (numbers → pictures), a page."""
