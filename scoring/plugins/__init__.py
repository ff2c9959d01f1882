"""Score plugins, one module each, with the formula in its docstring; ``base`` defines their interface."""
