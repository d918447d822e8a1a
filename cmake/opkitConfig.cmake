# find_package(opkit): targets opkit::opkit and, where a CUDA toolkit is found, opkit::cuda.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/opkitTargets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/OpkitOperators.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/OpkitCuda.cmake)
opkit_add_cuda_target()
