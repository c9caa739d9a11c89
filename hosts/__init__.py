"""Programs that embed the package, one folder each. Nothing in the package imports them."""
