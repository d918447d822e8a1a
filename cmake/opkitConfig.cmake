# find_package(opkit [COMPONENTS eigen …]): opkit::opkit, opkit::header_only and, as far as they were
# installed and what they need is found, opkit::ops, opkit::eigen, opkit::onnx, opkit::json and
# opkit::cuda.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/opkitTargets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/OpkitOperators.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/OpkitCuda.cmake)
opkit_add_cuda_target()
set(opkit_cuda_FOUND ${CUDAToolkit_FOUND})
file(GLOB opkit_libraries ${CMAKE_CURRENT_LIST_DIR}/libraries/*.cmake)
list(FILTER opkit_libraries EXCLUDE REGEX "/targets-[^/]*$")
foreach(opkit_library IN LISTS opkit_libraries)
  include(${opkit_library})
endforeach()
foreach(opkit_component IN LISTS opkit_FIND_COMPONENTS)
  if(opkit_FIND_REQUIRED_${opkit_component} AND NOT opkit_${opkit_component}_FOUND)
    set(opkit_FOUND FALSE)
    set(opkit_NOT_FOUND_MESSAGE "opkit::${opkit_component} was not installed, or a package that it "
      "needs is not found")
  endif()
endforeach()
