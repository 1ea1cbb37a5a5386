"""Previews as text and pictures: pure functions from a Preview to what is printed or saved."""
