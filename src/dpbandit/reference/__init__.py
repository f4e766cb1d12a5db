"""The engine in plain NumPy: the specification that the compiled core is checked against."""
