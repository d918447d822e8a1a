# What is generated and committed: ./dev docs and ./dev single-include.

docs_command() {
  (($# == 0)) || die "docs takes no arguments"
  want python3 has python3
  cli_command
  python3 tests/operators_reference.py . build/demo/tools/opkit/opkit --write
}

single-include_command() {
  (($# == 0)) || die "single-include takes no arguments"
  want python3 has python3
  ready
  python3 single_include/amalgamate.py
}
