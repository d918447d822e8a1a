# ./dev bench: runs benchmarks and writes their tables.

# Prints the folder and the name of each benchmark: engine/dynamic.
bench_names() {
  local source
  for source in bench/*/*_bench.cpp; do
    source=${source#bench/}
    echo "${source%_bench.cpp}"
  done
  printf '%s\n' hosts models models_eigen half operators tuning compile_time all_reduce namespaces
}

# record_bench NAME RESULT.json: runs a benchmark. Models that fail set bench_failed and have no figures.
bench_failed=
record_bench() {
  local backends=()
  [[ $1 != models_eigen ]] || backends=(--backends eigen,reference)
  case $1 in
    models*)
      make_peers
      fetch onnx "${models[@]}"
      "$peer_python" bench/models/models.py --opkit build/release/tools/opkit/opkit \
        --data "$data_dir" --json "$2" "${backends[@]}" ||
        bench_failed=$1
      ;;
    half)
      make_peers
      fetch onnx "${models[@]}"
      "$peer_python" bench/models/half.py --opkit build/release/tools/opkit/opkit \
        --data "$data_dir" --json "$2" ||
        bench_failed=$1
      ;;
    operators)
      make_peers
      fetch rapidocr_onnxruntime
      "$peer_python" bench/models/operators.py --opkit build/release/tools/opkit/opkit \
        --data "$data_dir" --json "$2" ||
        bench_failed=$1
      ;;
    tuning)
      make_peers
      fetch onnx "${models[@]}"
      "$peer_python" bench/tuning/tuning.py --opkit build/release/tools/opkit/opkit \
        --data "$data_dir" --json "$2" ||
        bench_failed=$1
      ;;
    hosts)
      make_peers
      make_jax
      make_package
      python3 bench/hosts/hosts.py --work build/bench/hosts --json "$2" --peer-python "$peer_python" \
        --jax-python "$jax_python" --package build/bench/package --package-python "$wheel_python" \
        ${OPKIT_TORCH_PYTHON:+--torch-python "$OPKIT_TORCH_PYTHON"} ||
        bench_failed=$1
      ;;
    compile_time) python3 bench/compile_time/compile_time.py --seconds --json "$2" ;;
    cluster/pipeline)
      fetch onnx
      OPKIT_DATA_DIR=$data_dir python3 bench/record.py build/release/bench/cluster/pipeline_bench "$2"
      ;;
    all_reduce) python3 bench/cluster/all_reduce.py build/release/bench/cluster/all_reduce "$2" ;;
    namespaces)
      fetch onnx
      OPKIT_DATA_DIR=$data_dir python3 bench/cluster/namespaces.py build/release/bench/cluster/namespaces "$2" ||
        bench_failed=$1
      ;;
    *) OPKIT_MEMORY_PLAN_SVG=bench/results/memory_plan.svg \
      python3 bench/record.py "build/release/bench/$1_bench" "$2" ;;
  esac
  if [[ $1 == engine/task_graph ]]; then  # counts instructions, in a program that valgrind can run
    cmake --preset release -B build/release-counted -DOPKIT_BENCH_NATIVE=OFF >build/release-counted.log
    cmake --build build/release-counted -j "$jobs" --target task_graph_bench
    python3 bench/engine/count_instructions.py build/release-counted/bench/engine/task_graph_bench "$2"
  fi
}

# The Python package with libopkit.so, built and installed into build/bench/package.
make_package() {
  make_wheel_tools
  rm -rf build/bench/wheel build/bench/package
  say "building the Python package (some minutes the first time)"
  CMAKE_BUILD_PARALLEL_LEVEL=$jobs "$wheel_python" -m pip wheel --quiet --no-build-isolation --no-deps --no-index \
    --disable-pip-version-check -w build/bench/wheel -Cbuild-dir=build/bench/wheel-objects \
    -Ccmake.define.CMAKE_UNITY_BUILD=ON . &&
    "$wheel_python" -m pip install --quiet --no-index --no-deps --disable-pip-version-check \
      --target build/bench/package build/bench/wheel/opkit-*.whl ||
    die "could not build the Python package"
}

uses_onednn() { [[ " $* " == *" models"* || " $* " == *" half "* || " $* " == *" operators "* || " $* " == *" tuning "* || " $* " == *" kernels/"* || " $* " == *" cluster/pipeline "* || " $* " == *" namespaces "* ]]; }  # BENCHMARK...

bench_command() {
  local rest filter all names=() targets=() name result
  read_without_onednn "$@"
  filter=${rest[0]-}
  ((${#rest[@]} < 2)) || die "bench takes one filter, not '${rest[*]}'"
  mapfile -t all < <(bench_names)
  for name in "${all[@]}"; do
    [[ $name == *"$filter"* ]] || continue
    if [[ $name == cuda/* ]] && find_nvcc && ! quietly has "${CUDACXX:-nvcc}"; then
      say "$name: not measured, there is no nvcc"
      continue
    fi
    names+=("$name")
    case $name in
      models* | half | operators | tuning)
        targets+=(opkit_cli)
        want espeak-ng has espeak-ng
        want_fonts
        want_venv
        want_wheels onnx "${models[@]}"
        ;;
      hosts) want_venv ;;
      cluster/pipeline)
        want_wheels onnx "${models[@]}"
        targets+=(pipeline_bench)
        ;;
      compile_time) want_compile_time_peers ;;
      all_reduce)
        targets+=(all_reduce)
        want_mpi
        ;;
      namespaces)
        want_wheels onnx "${models[@]}"
        targets+=(namespaces)
        want_mpi
        ;;
      *) targets+=("${name#*/}_bench") ;;
    esac
    [[ $name != engine/task_graph ]] || want valgrind has valgrind
  done
  ((${#names[@]})) ||
    die "no benchmark's name contains '$filter'$(nearest "$filter" "${all[@]#*/}") (${all[*]})"
  want_tests
  ! uses_onednn "${names[@]}" || want_onednn
  ready
  mkdir -p build
  ! uses_onednn "${names[@]}" || fetch_onednn
  ((${#targets[@]} == 0)) || build_command release "${targets[@]}"
  ! uses_onednn "${names[@]}" || say_onednn release
  for name in "${names[@]}"; do
    say "$name"
    result=build/bench/${name#*/}.json
    rm -f "$result"
    record_bench "$name" "$result"
    [[ ! -f $result ]] || python3 bench/summarize.py "$result"
  done
  [[ ! $bench_failed ]] || die "$bench_failed: a measurement failed, or outputs differ"
}
