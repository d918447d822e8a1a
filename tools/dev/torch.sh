# ./dev test export/torch: exported operators in the real PyTorch. `./dev test --all` does not run it. If $PYTHON
# (python3) has PyTorch, that one calls them. Otherwise the PyTorch of a wheel for ARM64 does, in qemu-user: it is 146 MB,
# and the wheels for x86-64 have CUDA and are four times as large.
torch_wheels=(torch==2.10.0 numpy==2.4.6 sympy==1.14.0 mpmath==1.3.0 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.3
              fsspec==2026.9.0 filelock==4.3.1 typing_extensions==4.15.0)
torch_debs=(python3 libstdc++6)
torch_folder=$PWD/build/torch
torch_python=
torch_compiler=

has_torch() {
  "${PYTHON:-python3}" -c 'import torch; assert [int(n) for n in torch.__version__.split(".")[:2]] >= [2, 10]'
}

# Sets `torch_python`, and the compiler of its machine.
want_torch() {
  if quietly has_torch; then
    torch_python=$(command -v "${PYTHON:-python3}") torch_compiler=${CXX:-g++}
    return
  fi
  torch_python=$torch_folder/python torch_compiler=aarch64-linux-gnu-g++
  want_arm64
  want python3-pip python3 -m pip --version
  want apt has apt-get
  want dpkg has dpkg-deb
}

# apt-get for ARM64, with lists and a status of its own, so that the system gets no second architecture.
apt_get_arm64() {
  local state=$torch_folder/apt
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" \
    -o Dir::State::status="$state/status" -o Dir::Cache="$state" -o Debug::NoLocking=1 \
    -o APT::Sandbox::User="$(id -un)" "$@"
}

# Unpacks the Python of this distribution for ARM64 and the wheels. Nothing of them is installed in the system.
make_torch() {
  [[ $torch_python == "$torch_folder/python" ]] || return 0
  local root=$torch_folder/root deb python wanted="${torch_debs[*]} ${torch_wheels[*]}"
  [[ $(cat "$torch_folder/packages" 2>/dev/null) != "$wanted" ]] || return 0
  say "downloading PyTorch for ARM64 and a Python, to build/torch"
  rm -rf "$torch_folder"
  mkdir -p "$torch_folder"/apt/{lists,archives}/partial "$root"
  : >"$torch_folder/apt/status"
  apt_get_arm64 update || die "apt-get cannot read the lists for ARM64"
  apt_get_arm64 install --download-only --no-install-recommends --yes "${torch_debs[@]}" ||
    die "apt-get could not download ${torch_debs[*]} for ARM64"
  for deb in "$torch_folder"/apt/archives/*.deb; do
    dpkg-deb -x "$deb" "$root"
  done
  python=$(basename "$(realpath "$root/usr/bin/python3")")
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --root-user-action=ignore \
    --only-binary :all: --implementation cp --python-version "${python#python}" --platform manylinux2014_aarch64 \
    --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 --target "$torch_folder/site" \
    "${torch_wheels[@]}" || die "could not download the wheel of ${torch_wheels[0]}"
  cat >"$torch_folder/python" <<END
#!/bin/sh
PYTHONHOME='$root/usr' PYTHONPATH='$torch_folder/site' exec '$PWD/tests/support/qemu_aarch64.sh' -L '$root' \\
  '$root/usr/bin/$python' "\$@"
END
  chmod +x "$torch_folder/python"
  rm -rf "$torch_folder/apt"
  echo "$wanted" >"$torch_folder/packages"
}

# Writes the Python side of an example's operators to build/torch/python_side. The command line reads a shared object of
# this machine; the package then gets that of PyTorch's machine.
make_python_side() {
  local package=$torch_folder/python_side/generated
  say "compiling the command line"
  configure gcc "${test_arguments[@]}"
  cmake --build --preset gcc -j "$jobs" --target opkit_cli cli_test_library_exports || die "it does not build"
  rm -rf "$torch_folder/python_side"
  mkdir -p "$torch_folder/python_side"
  build/gcc/tools/opkit/opkit export build/gcc/tests/cli/libexports.so --python "$package"
  mv "$torch_folder/exports.so" "$package/libexports.so"
}

test_torch() {
  local tests=$PWD/tests/export report=$torch_folder/junit.xml source
  mkdir -p "$torch_folder"
  make_torch
  for source in tests/export/torch/operators.cc examples/library/exported.cc tests/cli/libraries/exports.cc; do
    say "compiling $source"
    "$torch_compiler" -std=c++20 -O1 -shared -fPIC -fno-gnu-unique -Iinclude "$source" \
      -o "$torch_folder/$(basename "$source" .cc).so" || die "$source does not compile"
  done
  make_python_side
  say "calling the operators in PyTorch (some minutes in qemu-user)"
  cat >"$torch_folder/CTestTestfile.cmake" <<END
add_test(export_torch_test "$torch_python" "$tests/torch/torch_test.py" "$torch_folder/operators.so")
add_test(export_python_side_torch_test "$torch_python" "$tests/torch/python_side_test.py" "$torch_folder/python_side")
add_test(export_page_torch_test "$(command -v python3)" "$tests/hosts_page_test.py" "$PWD/docs/hosts.md"
  "$torch_folder/exported.so" PyTorch)
set_tests_properties(export_page_torch_test PROPERTIES ENVIRONMENT "OPKIT_PAGE_PYTHON=$torch_python")
END
  rm -f "$report"
  ctest --test-dir "$torch_folder" --timeout 7200 -j "$jobs" "${ctest_output[@]}" --output-junit "$report" || true
  reports+=("$report")
}
