# Generates files: ./dev docs and ./dev single-include, whose results are committed, and ./dev docs-site.

docs_command() {
  (($# == 0)) || die "docs takes no arguments"
  want python3 has python3
  cli_command
  python3 tests/operators_reference.py . build/demo/tools/opkit/opkit --write
}

docs-site_command() {
  [[ $# == 0 || $* == --serve ]] || die "docs-site takes --serve, not '$*'"
  want python3 has python3
  want_venv
  ready
  mkdir -p build
  python3 tools/docs/site.py "$@"
}

single-include_command() {
  (($# == 0)) || die "single-include takes no arguments"
  want python3 has python3
  ready
  python3 single_include/amalgamate.py
}
