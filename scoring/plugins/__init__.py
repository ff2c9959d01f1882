"""One file a plugin, its formula in the docstring; ``base`` says what a plugin is."""
