# Configuring and building: ./dev build and ./dev cli.

find_nvcc() {
  if ! quietly has nvcc && [[ -x /usr/local/cuda/bin/nvcc ]]; then
    export CUDACXX=/usr/local/cuda/bin/nvcc
  fi
}

# configure PRESET CMAKE_ARGUMENT...
configure() {
  local preset=$1 arguments=()
  shift
  arguments+=("-DOPKIT_ONEDNN_DATA_DIR=$onednn_data" "-DCMAKE_DISABLE_FIND_PACKAGE_dnnl=$without_onednn")
  if quietly has ccache; then
    arguments+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
    export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-locale}  # ctest sets another value for what tests compile
  fi
  case $preset in
    clang | asan | tsan) arguments+=("-DCMAKE_CXX_COMPILER=${clang:-$(find_llvm clang++)}") ;;
  esac
  cmake --preset "$preset" -Wno-dev --no-warn-unused-cli "${arguments[@]}" "$@" >"build/$preset.log" 2>&1 ||
    { cat "build/$preset.log"; return 1; }
}

# with_sanitizers PRESET COMMAND...: sanitizers need fixed addresses for their shadow memory. Kernels that randomise
# mappings by 32 bits may use these addresses.
with_sanitizers() {
  local preset=$1
  shift
  if [[ $preset == [at]san ]] && quietly setarch "$(uname -m)" -R true; then
    setarch "$(uname -m)" -R "$@"
  else
    "$@"
  fi
}

# Says which oneDNN the build of this preset uses.
say_onednn() {
  local found
  found=$(sed -n 's/^-- opkit: opkit::onednn uses dnnl /with oneDNN /p' "build/$1.log")
  if [[ $found == *"(wheel)" ]]; then
    echo "$found"
  elif [[ $found ]]; then
    echo "$found (installed)"
  elif [[ $without_onednn == ON ]]; then
    echo "without oneDNN, as asked"
  else
    echo "without oneDNN: version 3 is not installed, and its wheel could not be had"
  fi
}

cli_command() {
  local rest
  read_without_onednn "$@"
  ((${#rest[@]} == 0)) || die "cli takes --without-onednn, not '${rest[*]}'"
  want_build
  want_json
  want libcli11-dev has_header CLI/CLI.hpp
  want_onednn
  ready
  mkdir -p build
  fetch_onednn_if_there
  say "compiling the command-line program (some minutes the first time)"
  configure demo -DOPKIT_BUILD_CLI=ON
  say_onednn demo
  cmake --build --preset demo -j "$jobs" --target opkit_cli
  printf '\nbuild/demo/tools/opkit/opkit is ready; for this shell:\n  PATH=$PATH:%q\n' \
    "$PWD/build/demo/tools/opkit"
}

build_command() {
  local preset=${1:-gcc} presets
  (($# == 0)) || shift
  mapfile -t presets < <(sed -n '/"buildPresets"/,/^  \]/s/.*"name": "\([^"]*\)".*/\1/p' CMakePresets.json)
  [[ " ${presets[*]} " == *" $preset "* ]] ||
    die "there is no preset '$preset'$(nearest "$preset" "${presets[@]}") (${presets[*]})"
  want_tests
  case $preset in
    clang | asan | tsan) want_clang ;;
    arm64) want_arm64 ;;
    gpu) find_nvcc ;;
  esac
  want_dlpack
  ready
  mkdir -p build
  fetch_dlpack
  configure "$preset" ${dlpack_include:+"-DOPKIT_DLPACK_INCLUDE_DIR=$dlpack_include"}
  cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
}
