"""Servers under measurement: started by whoever needs them first, kept between cells, never outliving the run."""
