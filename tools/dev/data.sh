# Data and libraries from pinned wheels: data/wheels.json lists them, and data/fetch.py fetches each once.
data_dir=$(realpath -m "${OPKIT_DATA_DIR:-build/data}")
export OPKIT_DATA_DIR=$data_dir
models=(magika rapidocr_onnxruntime silero_vad)

fetch() {  # PACKAGE..., for which the command has called want_wheels
  ! python3 data/fetch.py --check "$@" || return 0
  python3 data/fetch.py "$@" || die "could not fetch $*"
}

# dlpack/dlpack.h with DLManagedTensorVersioned (1.0 and later), which distributions often lack. Only
# the header of a wheel is used.
dlpack_include=
has_versioned_dlpack() {
  g++ -fsyntax-only "$@" -x c++ - <<<'#include <dlpack/dlpack.h>
                                      DLManagedTensorVersioned* tensor;'
}
want_dlpack() { quietly has_versioned_dlpack || want_wheels apache_tvm_ffi; }
fetch_dlpack() {
  ! quietly has_versioned_dlpack || return 0
  fetch apache_tvm_ffi
  dlpack_include=$(echo "$data_dir"/apache_tvm_ffi-*/tvm_ffi/include)
  has_versioned_dlpack "-I$dlpack_include" || die "$dlpack_include/dlpack/dlpack.h is not of version 1"
}

# oneDNN 3 for the command line, for benchmarks and for the tests of backends/onednn: an installed version, else the
# version of wheels, since distributions lack oneDNN 3. src/backends/onednn takes its headers and library. Everything else
# builds without it.
onednn_data=
without_onednn=OFF  # ON: also ignores an installed version
onednn_wheels=(onednn_cpu_gomp onednn_devel_cpu_gomp)
needs_onednn_wheels() {
  [[ $without_onednn == OFF && $(uname -sm) == "Linux x86_64" ]] && ! g++ -fsyntax-only -x c++ - 2>/dev/null <<<'
    #include <oneapi/dnnl/dnnl_version.h>
    static_assert(DNNL_VERSION_MAJOR == 3);'
}
want_onednn() { ! needs_onednn_wheels || want_wheels "${onednn_wheels[@]}"; }
fetch_onednn() {
  needs_onednn_wheels || return 0
  fetch "${onednn_wheels[@]}"
  onednn_data=$data_dir
}
# Fetches the wheels if they are within reach. Without them a build has the other backends.
fetch_onednn_if_there() {
  needs_onednn_wheels || return 0
  if python3 data/fetch.py --check "${onednn_wheels[@]}" || python3 data/fetch.py "${onednn_wheels[@]}"; then
    onednn_data=$data_dir
  fi
}
# Takes --without-onednn out of a command's arguments, in `rest`.
read_without_onednn() {
  local argument
  rest=()
  for argument in "$@"; do
    if [[ $argument == --without-onednn ]]; then without_onednn=ON; else rest+=("$argument"); fi
  done
}

# make_venv FOLDER PACKAGE==VERSION...: a Python environment with exactly these wheels, made anew for another list.
make_venv() {
  local folder=$1
  shift
  [[ $(cat "$folder/packages" 2>/dev/null) != "$*" ]] || return 0
  say "installing ${1%%=*} and ${2%%=*} in $folder"
  python3 -m venv --clear "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$@" ||
    die "could not install ${1%%=*}"
  echo "$*" >"$folder/packages"
}

# A Python with ONNX Runtime, the peer of bench/models and tests/differential.
peer_python=$PWD/build/peer-venv/bin/python
make_peers() {
  make_venv "$PWD/build/peer-venv" onnxruntime==1.31.1 onnx==1.22.0 ml_dtypes==0.6.0 numpy==2.4.6 pillow==11.3.0 apache-tvm-ffi==0.1.15.post2
}

# A Python with JAX, which calls exported operators in tests/export.
jax_python=$PWD/build/jax-venv/bin/python
make_jax() { make_venv "$PWD/build/jax-venv" jax==0.10.2 jaxlib==0.10.2; }
# A Python with the tools and the dependencies of the Python package, for tests/python.
wheel_python=$PWD/build/wheel-venv/bin/python
make_wheel_tools() {
  make_venv "$PWD/build/wheel-venv" scikit-build-core==1.1.2 nanobind==3.1.0 numpy==2.4.6 ml_dtypes==0.6.0 pytest==9.2.0
}

# ONNX Runtime's shared object in that Python, for the partitioner that opens it. Not used under sanitizers,
# which report its leaks.
find_onnxruntime() {
  local found=("${peer_python%/bin/python}"/lib/python*/site-packages/onnxruntime/capi/libonnxruntime.so.*)
  [[ ! ${found[0]-} ]] || peer_onnxruntime=${found[0]}
}
