"""The commands, a module for each kind; each parses, calls one function of the library and prints."""
