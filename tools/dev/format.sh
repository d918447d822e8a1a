# ./dev format and ./dev tidy.

# Prints the C++ files, with those that git does not track yet, each ended by a nul.
cpp_files() {
  git ls-files -coz --exclude-standard '*.hpp' '*.ipp' '*.h' '*.cpp' '*.cc' '*.cu' ':!single_include/opkit'
}

format_command() {
  local flags=(-i)
  [[ ${1-} != --check ]] || flags=(--dry-run --Werror)
  want git has git
  if ! quietly find_llvm clang-format; then
    ! can_install || apt_update
    missing+=("clang-format-$(llvm_package_version clang-format)")
  fi
  ready
  cpp_files |
    xargs -0 "$(find_llvm clang-format)" "${flags[@]}"
}

tidy_command() {
  want_tests
  want_clang
  want "clang-tidy-${clang##*-}" has "clang-tidy-${clang##*-}"
  ready
  mkdir -p build
  configure clang
  local files=("$@")
  ((${#files[@]})) ||
    mapfile -t files < <(sed -n 's/.*"file": "\(.*_test\.cpp\)".*/\1/p' build/clang/compile_commands.json)
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$jobs" "clang-tidy-${clang##*-}" --quiet -p build/clang
}
