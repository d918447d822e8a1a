# Operators in libraries. A MODULE is for Library::Load; with -fno-gnu-unique it can be unloaded.
#
#   opkit_add_operator_library(my_ops MODULE my_ops.cc)
#
# From a static library a linker takes only the objects that something refers to. Nothing refers to an
# object that only registers operators: the linker would drop the object and its operators.
#
#   opkit_add_operator_library(my_ops STATIC scale.cc axpy.cc)   # also OBJECT or SHARED
#   opkit_link_operators(my_program my_ops)                      # keeps every registration

function(opkit_add_operator_library name type)
  add_library(${name} ${type} ${ARGN})
  target_link_libraries(${name} PUBLIC opkit::opkit)
  if(type STREQUAL "MODULE")
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>
      $<$<AND:$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>,$<CXX_COMPILER_ID:GNU>>:-Xcompiler=-fno-gnu-unique>)
    # The library uses its own runtime, even if the program exports the same symbols.
    if(NOT APPLE)
      target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
    endif()
  endif()
endfunction()

function(opkit_link_operators target)
  foreach(library IN LISTS ARGN)
    if(NOT TARGET ${library})
      message(FATAL_ERROR "opkit_link_operators(${target} ${library}): '${library}' is no target; "
        "create it first, for example with opkit_add_operator_library(${library} STATIC ...)")
    endif()
    get_target_property(type ${library} TYPE)
    if(type STREQUAL "STATIC_LIBRARY" AND APPLE)
      target_link_libraries(${target} PRIVATE -Wl,-force_load,$<TARGET_FILE:${library}>)
    elseif(type STREQUAL "STATIC_LIBRARY")
      target_link_libraries(${target} PRIVATE
        -Wl,--whole-archive,$<TARGET_FILE:${library}>,--no-whole-archive)
    elseif(type STREQUAL "SHARED_LIBRARY" AND NOT APPLE)
      target_link_libraries(${target} PRIVATE
        -Wl,--push-state,--no-as-needed,$<TARGET_FILE:${library}>,--pop-state)
    endif()
    target_link_libraries(${target} PRIVATE ${library})
    add_dependencies(${target} ${library})
  endforeach()
endfunction()
