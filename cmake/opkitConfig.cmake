# find_package(opkit [COMPONENTS eigen …]) defines opkit::opkit and opkit::header_only. It defines
# opkit::ops, opkit::eigen, opkit::onnx, opkit::json, opkit::host, opkit::cluster, opkit::mpi, opkit::nccl,
# opkit::cuda and opkit::cuda_ops if they are installed and their requirements are found. If components are
# given without mpi, it does not look for MPI.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/opkitTargets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/OpkitOperators.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/OpkitCuda.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/OpkitMpi.cmake)
find_package(CUDAToolkit QUIET)
opkit_add_cuda_target()
set(opkit_cuda_FOUND ${CUDAToolkit_FOUND})
file(GLOB opkit_libraries ${CMAKE_CURRENT_LIST_DIR}/libraries/*.cmake)
list(FILTER opkit_libraries EXCLUDE REGEX "/targets-[^/]*$")
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR})  # FindNCCL.cmake
foreach(opkit_library IN LISTS opkit_libraries)
  include(${opkit_library})
endforeach()
list(POP_BACK CMAKE_MODULE_PATH)
set(opkit_cuda_ops_WHY_NOT "opkit was installed without it, and -DOPKIT_CUDA_OPS=ON adds it")
set(opkit_missing "")
foreach(opkit_component IN LISTS opkit_FIND_COMPONENTS)
  if(opkit_FIND_REQUIRED_${opkit_component} AND NOT opkit_${opkit_component}_FOUND)
    list(APPEND opkit_missing opkit::${opkit_component})
  endif()
endforeach()
if(opkit_missing)
  set(opkit_FOUND FALSE)
  list(JOIN opkit_missing ", " opkit_missing)
  string(CONCAT opkit_NOT_FOUND_MESSAGE "not there: ${opkit_missing}; it was not installed, or a "
    "package that it needs is not found")
  foreach(opkit_component IN LISTS opkit_FIND_COMPONENTS)
    if(opkit_missing MATCHES "opkit::${opkit_component}(,|$)" AND opkit_${opkit_component}_WHY_NOT)
      string(APPEND opkit_NOT_FOUND_MESSAGE
        ". opkit::${opkit_component}: ${opkit_${opkit_component}_WHY_NOT}")
    endif()
  endforeach()
endif()
