# Libraries with MXNet's C boundary, each build/.../tests/mxnet_libraries/lib<name>.so.
# opkit_use_mxnet_libraries(test) has a test find them by the definition OPKIT_TEST_LIBRARIES.
set(OPKIT_TEST_MXNET_LIBRARIES ${CMAKE_BINARY_DIR}/tests/mxnet_libraries)
set(OPKIT_TEST_MXNET_SOURCES ${CMAKE_CURRENT_LIST_DIR}/libraries)
include_guard(GLOBAL)  # tests/interop and tests/cli include this file
enable_language(C)

# opkit_add_mxnet_library(name sources... [DEFINE definition...])
function(opkit_add_mxnet_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEFINE")
  set(target opkit_mxnet_library_${name})
  list(TRANSFORM arg_UNPARSED_ARGUMENTS PREPEND ${OPKIT_TEST_MXNET_SOURCES}/)
  add_library(${target} MODULE ${arg_UNPARSED_ARGUMENTS})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} PREFIX lib SUFFIX .so
    LIBRARY_OUTPUT_DIRECTORY $<1:${OPKIT_TEST_MXNET_LIBRARIES}> C_STANDARD 11 UNITY_BUILD OFF)
  target_compile_definitions(${target} PRIVATE ${arg_DEFINE})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror
    $<$<COMPILE_LANGUAGE:C>:-Wpedantic -fexceptions>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  target_link_libraries(${target} PRIVATE m Threads::Threads)
  set_property(GLOBAL APPEND PROPERTY opkit_mxnet_libraries ${target})
endfunction()

find_package(Threads REQUIRED)
opkit_add_mxnet_library(whole boundary.c operators.c gemm.c sparse.c graph.c noisy.cc)
opkit_add_mxnet_library(arithmetic boundary.c arithmetic.c)
# Linked so that nothing tells which of MXNet's functions it uses.
opkit_add_mxnet_library(symbolic boundary.c operators.c gemm.c sparse.c graph.c noisy.cc)
target_link_options(opkit_mxnet_library_symbolic PRIVATE -Wl,-Bsymbolic)
opkit_add_mxnet_library(faults boundary.c faults.c throws.cc)
opkit_add_mxnet_library(pass_alone boundary.c pass_alone.c)
# my_gemm and state_gemm alone, in libraries that differ in one thing.
set(gemm boundary.c gemm.c)
opkit_add_mxnet_library(gemm ${gemm} DEFINE ALONE)
opkit_add_mxnet_library(gemm_too ${gemm} DEFINE ALONE FACTOR=2)
opkit_add_mxnet_library(gemm_v7 ${gemm} DEFINE ALONE VERSION=7)
opkit_add_mxnet_library(gemm_v10 ${gemm} DEFINE ALONE VERSION=10)
opkit_add_mxnet_library(gemm_v42 ${gemm} DEFINE ALONE VERSION=42)
opkit_add_mxnet_library(gemm_lacks ${gemm} DEFINE ALONE LACKS_PARTITIONERS)
opkit_add_mxnet_library(gemm_refuses ${gemm} DEFINE ALONE REFUSES)
opkit_add_mxnet_library(gemm_countless ${gemm} DEFINE ALONE NUM_OPERATORS=0x7fffffff)
opkit_add_mxnet_library(gemm_listless ${gemm} DEFINE ALONE LACKS_LISTS)
opkit_add_mxnet_library(gemm_typeless ${gemm} DEFINE ALONE LACKS_TYPE)
opkit_add_mxnet_library(gemm_pinned ${gemm} unique.cc DEFINE ALONE)
target_compile_options(opkit_mxnet_library_gemm_pinned PRIVATE  # as MXNet's own makefiles do
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fgnu-unique>)
opkit_add_mxnet_library(constructor constructor.cc)

function(opkit_use_mxnet_libraries test)
  get_property(libraries GLOBAL PROPERTY opkit_mxnet_libraries)
  add_dependencies(${test} ${libraries})
  target_compile_definitions(${test} PRIVATE
    OPKIT_TEST_LIBRARIES="${OPKIT_TEST_MXNET_LIBRARIES}")
endfunction()
