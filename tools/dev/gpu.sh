# ./dev gpu: checks and measures the backend "cuda" on this machine's NVIDIA GPU, in a few minutes and
# without network. tools/dev/gpu.py does the work.

gpu_command() {
  local arguments=("$@") packs=no minutes=8
  while (($#)); do
    case $1 in
      --pack) packs=yes; shift ;;
      --minutes)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] || die "gpu takes --minutes NUMBER, not '${2-}'"
        minutes=$2
        shift 2
        ;;
      --out)
        [[ ${2-} ]] || die "gpu takes --out FOLDER"
        shift 2
        ;;
      *) die "gpu takes --pack, --minutes M and --out FOLDER, not '$1'" ;;
    esac
  done
  if [[ $packs == no ]]; then
    quietly has python3 || die "gpu needs python3"
    exec python3 tools/dev/gpu.py "${arguments[@]}"
  fi
  ((${#arguments[@]} == 1)) || die "gpu --pack takes no other option"
  want python3 has python3
  want g++ has g++
  want doctest-dev has_header doctest/doctest.h
  want libprotozero-dev has_header protozero/pbf_reader.hpp
  want libeigen3-dev has_header eigen3/Eigen/Core
  want libbenchmark-dev has_header benchmark/benchmark.h
  want_wheels onnx "${models[@]}"
  want_dlpack
  ready
  fetch onnx "${models[@]}"
  fetch_dlpack
  python3 tools/dev/gpu.py --pack ${dlpack_include:+"--dlpack=$dlpack_include"}
}
