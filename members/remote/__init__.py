"""Members that are agents of A2A elsewhere, and members that others reach over A2A (A22)."""
