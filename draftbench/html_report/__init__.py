"""The report on the screen: one self-contained HTML file that asks nothing of the network."""
