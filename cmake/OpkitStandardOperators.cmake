# The standard operators as objects, so that a program that runs models compiles none of them:
#
#   target_link_libraries(my_program PRIVATE opkit::ops opkit::eigen)
#
# opkit::ops holds the schemas and the reference kernels, opkit::eigen the fast kernels (it needs
# Eigen 3). No object takes longer than 20 s to compile at -O2. opkit::onnx holds the reader of ONNX
# models (it needs protozero): what links it does not compile that either, by the macro
# OPKIT_EXTERN_ONNX. Nothing is built until a target links it. Link them to the executable itself:
# objects do not travel through other libraries.
option(OPKIT_NATIVE "Compile the standard operators for the instruction set of this machine"
  ${PROJECT_IS_TOP_LEVEL})
set(OPKIT_OPERATORS_COMPILE_OPTIONS "" CACHE STRING
  "More options to compile the standard operators with, such as -O2 in a debug build")

# opkit_add_standard_operators(target folder): an object library of the headers of
# include/opkit/<folder> that register operators.
function(opkit_add_standard_operators target folder)
  # Beside this file in the sources, above it where opkit is installed.
  set(here ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  find_path(OPKIT_HEADERS opkit/opkit.hpp NO_DEFAULT_PATH REQUIRED
    HINTS ${here}/../include ${here}/../../../include ${here}/../../../../include)
  mark_as_advanced(OPKIT_HEADERS)
  set(include_dir ${OPKIT_HEADERS})
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${include_dir} ${include_dir}/opkit/${folder}/*.hpp)
  set(units)
  foreach(header IN LISTS headers)
    file(STRINGS ${include_dir}/${header} registers REGEX "^ *OPKIT_(REGISTER|OPERATOR_SCHEMA)")
    if(registers)
      string(MAKE_C_IDENTIFIER ${header} name)
      set(unit ${CMAKE_CURRENT_BINARY_DIR}/${target}/${name}.cpp)
      file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${header}\"\n")
      list(APPEND units ${unit})
    endif()
  endforeach()
  opkit_add_objects(${target} ${units})
endfunction()

function(opkit_add_objects target)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${ARGN})
  target_link_libraries(${target} PUBLIC opkit::opkit)
  target_compile_options(${target} PRIVATE ${OPKIT_OPERATORS_COMPILE_OPTIONS}
    $<$<BOOL:${OPKIT_NATIVE}>:-march=native>)
endfunction()

function(opkit_add_standard_operator_targets)
  if(NOT TARGET opkit::ops)
    opkit_add_standard_operators(opkit_ops ops)
    # Four headers in an object: what they share is compiled once. Those of opkit::eigen take longer.
    if(NOT CMAKE_UNITY_BUILD)
      set_target_properties(opkit_ops PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
    endif()
    add_library(opkit::ops ALIAS opkit_ops)
  endif()
  if(NOT TARGET opkit::eigen)
    find_package(Eigen3 3.4 QUIET NO_MODULE)
    if(TARGET Eigen3::Eigen)
      opkit_add_standard_operators(opkit_eigen backends/eigen)
      target_link_libraries(opkit_eigen PUBLIC Eigen3::Eigen)
      add_library(opkit::eigen ALIAS opkit_eigen)
    endif()
  endif()
  if(NOT TARGET opkit::onnx)
    find_path(OPKIT_PROTOZERO_INCLUDE_DIR protozero/pbf_reader.hpp)
    mark_as_advanced(OPKIT_PROTOZERO_INCLUDE_DIR)
    if(OPKIT_PROTOZERO_INCLUDE_DIR)
      file(CONFIGURE OUTPUT opkit_onnx/onnx.cpp CONTENT "#include \"opkit/interop/onnx/load.hpp\"\n")
      opkit_add_objects(opkit_onnx ${CMAKE_CURRENT_BINARY_DIR}/opkit_onnx/onnx.cpp)
      target_compile_definitions(opkit_onnx PUBLIC OPKIT_EXTERN_ONNX)
      target_include_directories(opkit_onnx PRIVATE ${OPKIT_PROTOZERO_INCLUDE_DIR})
      add_library(opkit::onnx ALIAS opkit_onnx)
    endif()
  endif()
endfunction()
