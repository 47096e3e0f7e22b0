"""The table of what int8 loses, in the README of the embedded model."""
