# ./dev demo: two real models on real input.
demo_command() {
  local arguments=() argument
  (($# < 3)) || die "demo takes a folder and a picture, not '$*'"
  for argument in "$@"; do
    [[ $argument != -* ]] || { help_command; exit 0; }
    [[ $argument == /* ]] || argument=$called_from/$argument
    arguments+=("$argument")
  done
  (($# < 1)) || [[ -d ${arguments[0]} ]] || die "there is no folder '$1'"
  (($# < 2)) || [[ -f ${arguments[1]} ]] || die "there is no file '$2'"
  want_build
  want_demo
  want graphviz has dot
  want_wheels magika rapidocr_onnxruntime
  ready
  mkdir -p build
  fetch magika rapidocr_onnxruntime
  say "compiling the demo (some minutes the first time)"
  configure demo "-DOPKIT_DATA_DIR=$data_dir"
  cmake --build --preset demo -j "$jobs" --target demo
  build/demo/examples/demo/demo "${arguments[@]}"
}
