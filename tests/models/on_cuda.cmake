# opkit_add_models_on_cuda(name libraries...): the cases of the known models that run on kernels for CUDA
# if `libraries` have any.
function(opkit_add_models_on_cuda name)
  set(folder ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  add_executable(${name} ${folder}/models_test.cpp ${folder}/light_test.cpp)
  target_link_libraries(${name} PRIVATE opkit_test_main opkit_test_options ${ARGN} opkit::ops opkit::onnx)
  target_compile_options(${name} PRIVATE ${OPKIT_TEST_COMPILE_OPTIONS})
  opkit_name_model_files(${name})
  # The other cases do not depend on the kernels, and are no skipped ones.
  add_test(NAME ${name} COMMAND ${name} --no-skipped-summary=true
    "--test-case=magika*,the model of rapidocr*,silero*,light models with weights*,docs*")
  set_tests_properties(${name} PROPERTIES LABELS doctest TIMEOUT 900)
endfunction()
