"""One public function per use case."""
