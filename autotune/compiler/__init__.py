"""Graph and records in, a program with machine code and packed weights out."""
