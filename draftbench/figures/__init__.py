"""Figures: declared once from the tables, drawn by two renderers (pgfplots for print, Altair for the screen)."""
