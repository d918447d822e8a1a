# The libraries beside opkit::opkit: the standard operators (opkit::ops), kernels of a backend
# (opkit::eigen), readers of file formats (opkit::onnx, opkit::json). Each has a folder of src/, whose
# CMakeLists.txt is one call of
#
#   opkit_add_library(onnx STATIC SOURCES onnx.cpp HEADERS protozero/pbf_reader.hpp)
#   opkit_add_backend(eigen SOURCES conv.cpp matmul.cpp REQUIRES "Eigen3 3.4" Eigen3::Eigen)
#
# SOURCES   compiled with opkit::opkit, each in less than 20 s at -O2
# REQUIRES  packages, each followed by its target; programs that link the library use them too
# FIND      the code by which the installed package finds REQUIRES, instead of find_package; it may set
#           opkit_NAME_WHY_NOT to the reason why programs cannot use the library
# HEADERS   third-party headers that only the sources include
#
# The target's property OPKIT_PACKAGES has the packages with the versions that were found ("Eigen3 3.4.0").
# If a requirement is missing, the target does not exist, and a message names the requirement.
#
# A library of operators is an OBJECT library: linkers drop an object of an archive if nothing refers
# to it, and nothing refers to an object that only registers operators. Link the library to the
# executable itself, because objects do not pass through other libraries. It is installed as objects.
option(OPKIT_NATIVE "Compile the operators for the instruction set of this machine" OFF)
# Standard operators are optimised in every build: otherwise they are 17 times slower, and users do
# not debug them.
set(optimised "$<$<CONFIG:Debug>:-O2>")
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND NOT CMAKE_CXX_FLAGS MATCHES "-O")
  set(optimised -O2)
endif()
set(OPKIT_OPERATORS_COMPILE_OPTIONS "${optimised}" CACHE STRING
  "More options to compile the libraries beside opkit::opkit with; by default -O2 where the build type or CMAKE_CXX_FLAGS do not optimise")

function(opkit_add_library name type)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" FIND "SOURCES;REQUIRES;HEADERS")
  set(missing)
  set(links)
  set(finds)
  set(found)
  while(arg_REQUIRES)
    list(POP_FRONT arg_REQUIRES package linked)
    list(APPEND links ${linked})
    string(APPEND finds "find_package(${package} QUIET)\n")
    separate_arguments(words UNIX_COMMAND "${package}")
    if(NOT TARGET ${linked})
      find_package(${words} QUIET)
      if(NOT TARGET ${linked})
        list(APPEND missing "${package}")
        continue()
      endif()
      get_target_property(imported ${linked} IMPORTED)
      if(imported)  # found in this folder, and linked in others
        set_target_properties(${linked} PROPERTIES IMPORTED_GLOBAL ON)
      endif()
    endif()
    list(GET words 0 words)
    string(STRIP "${words} ${${words}_VERSION}" words)
    list(APPEND found "${words}")
  endwhile()
  set(include_dirs)
  foreach(header IN LISTS arg_HEADERS)
    string(REGEX REPLACE "[/.].*" "" package ${header})
    string(TOUPPER OPKIT_${package}_INCLUDE_DIR variable)
    find_path(${variable} ${header})
    mark_as_advanced(${variable})
    if(${variable})
      list(APPEND include_dirs ${${variable}})
    else()
      list(APPEND missing ${header})
    endif()
  endforeach()
  if(missing)
    list(JOIN missing ", " missing)
    message(STATUS "opkit: opkit::${name} is not built, it needs ${missing}")
    return()
  endif()

  set(target opkit_${name})
  add_library(${target} ${type} ${arg_SOURCES})
  add_library(opkit::${name} ALIAS ${target})
  target_link_libraries(${target} PUBLIC opkit::opkit ${links})
  target_include_directories(${target} SYSTEM PRIVATE ${include_dirs})
  # As for opkit itself: a shared library that links it can be unloaded.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>
    ${OPKIT_OPERATORS_COMPILE_OPTIONS})
  # What an object takes to compile is the sources' choice, and a shared library may link it.
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name} UNITY_BUILD OFF POSITION_INDEPENDENT_CODE ON)
  list(JOIN found ", " found)
  set_target_properties(${target} PROPERTIES OPKIT_PACKAGES "${found}")
  if(found)
    message(STATUS "opkit: opkit::${name} uses ${found}")
  endif()
  if(OPKIT_NATIVE AND type STREQUAL "OBJECT")
    target_compile_options(${target} PRIVATE -march=native)
  endif()

  if(NOT OPKIT_INSTALL)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)  # built when linked
    return()
  endif()
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/opkit/libraries)
  install(TARGETS ${target} EXPORT opkit_${name} OBJECTS DESTINATION ${CMAKE_INSTALL_LIBDIR}/opkit)
  install(EXPORT opkit_${name} NAMESPACE opkit::
    FILE targets-${name}.cmake DESTINATION ${package_dir})
  if(arg_FIND)
    set(finds "${arg_FIND}\n")
  endif()
  set(found "NOT opkit_${name}_WHY_NOT")
  foreach(linked IN LISTS links)
    string(APPEND found " AND TARGET ${linked}")
  endforeach()
  file(CONFIGURE OUTPUT ${name}.cmake @ONLY CONTENT "${finds}if(${found})
  include(\${CMAKE_CURRENT_LIST_DIR}/targets-${name}.cmake)
  set(opkit_${name}_FOUND TRUE)
endif()
")
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.cmake DESTINATION ${package_dir})
endfunction()

# Kernels of a backend for the standard operators. The global property OPKIT_BACKENDS lists the targets
# of all backends that are built.
function(opkit_add_backend name)
  opkit_add_library(${name} OBJECT ${ARGN})
  if(TARGET opkit::${name})
    set_property(GLOBAL APPEND PROPERTY OPKIT_BACKENDS opkit::${name})
  endif()
endfunction()
