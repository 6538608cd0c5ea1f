"""The printed report: a LaTeX document through PyLaTeX, charts drawn by pgfplots from the tables."""
