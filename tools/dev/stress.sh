# Tests that run for a given time: ./dev differential, stress and fuzz.

differential_command() {
  local options=("$@")
  [[ " $* " == *" --minutes "* || " $* " == *" --case"* ]] || options+=(--minutes 1)
  want_tests
  want_dlpack
  want_venv
  ready
  mkdir -p build
  fetch_dlpack
  make_peers
  say "compiling tests/differential"
  configure gcc "-DOPKIT_PEER_PYTHON=$peer_python" \
    ${dlpack_include:+"-DOPKIT_DLPACK_INCLUDE_DIR=$dlpack_include"}
  cmake --build --preset gcc -j "$jobs" --target differential_runner
  "$peer_python" tests/differential/differential.py --folder build/differential \
    --runner build/gcc/tests/differential/differential_runner "${options[@]}"
}

# read_minutes COMMAND OPTION...: sets `minutes`, by default 10, and `rest`.
read_minutes() {
  local command=$1
  shift
  minutes=10 rest=()
  while (($#)); do
    if [[ $1 == --minutes ]]; then
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || die "$command takes --minutes NUMBER, not '${2-}'"
      minutes=$2
      shift 2
    else
      rest+=("$1")
      shift
    fi
  done
}

stress_command() {
  local minutes rest
  read_minutes stress "$@"
  [[ ${#rest[@]} == 0 || ${rest[0]} == --seed && ${rest[1]-} =~ ^[0-9]+$ && ${#rest[@]} == 2 ]] ||
    die "stress takes --minutes M and --seed S, not '${rest[*]}'"
  build_command gcc stress
  build/gcc/tests/stress/stress --minutes "$minutes" --seed "${rest[1]:-$RANDOM$RANDOM}"
}

# build/fuzz/NAME-* are the inputs that have failed, build/fuzz/NAME has inputs for the next run.
fuzz_command() {
  local minutes rest names=() all=() name failed=() seeds
  read_minutes fuzz "$@"
  ((${#rest[@]} < 2)) || die "fuzz takes one name, not '${rest[*]}'"
  for name in tests/fuzz/*_fuzz.cpp; do
    name=${name#tests/fuzz/} name=${name%_fuzz.cpp}
    all+=("$name")
    [[ $name != *"${rest[0]-}"* ]] || names+=("$name")
  done
  ((${#names[@]})) || die "no fuzz target's name contains '${rest[0]}'$(nearest "${rest[0]}" "${all[@]}") (${all[*]})"
  build_command asan "${names[@]/%/_fuzz}"
  for name in "${names[@]}"; do
    say "$name"
    mkdir -p "build/fuzz/$name"
    seeds=tests/fuzz/${name}_corpus
    ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
      with_sanitizers asan "build/asan/tests/fuzz/${name}_fuzz" -max_total_time=$((minutes * 60)) \
      -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
      -artifact_prefix="build/fuzz/$name-" "build/fuzz/$name" $([[ ! -d $seeds ]] || echo "$seeds") ||
      failed+=("$name")
  done
  ((${#failed[@]} == 0)) || die "${failed[*]} failed: the inputs are build/fuzz/NAME-*"
}
