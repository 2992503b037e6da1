"""Networks and the pieces that methods share."""
