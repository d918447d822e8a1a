# The standard operators as objects, so that a program that runs models compiles none of them:
#
#   target_link_libraries(my_program PRIVATE opkit::ops opkit::eigen)
#
# opkit::ops holds the schemas and the reference kernels, opkit::eigen the fast kernels (it needs
# Eigen 3). Each header that registers operators becomes one object. Nothing is built until a target
# links it. Link them to the executable itself: objects do not travel through other libraries.
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
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${include_dir} ${include_dir}/opkit/${folder}/*.hpp)
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
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${units})
  target_link_libraries(${target} PUBLIC opkit::opkit)
  target_compile_options(${target} PRIVATE ${OPKIT_OPERATORS_COMPILE_OPTIONS})
  if(OPKIT_NATIVE)
    target_compile_options(${target} PRIVATE -march=native)
  endif()
endfunction()

function(opkit_add_standard_operator_targets)
  if(NOT TARGET opkit::ops)
    opkit_add_standard_operators(opkit_ops ops)
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
endfunction()
