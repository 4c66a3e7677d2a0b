"""The weights that come with the installation, a folder for each model: data, no code."""
