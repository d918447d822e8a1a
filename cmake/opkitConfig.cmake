# find_package(opkit): targets opkit::opkit and, where a CUDA toolkit is found, opkit::cuda;
# opkit::ops, and where Eigen 3 and protozero are found, opkit::eigen and opkit::onnx, are compiled by
# the program that links them.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/opkitTargets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/OpkitOperators.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/OpkitCuda.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/OpkitStandardOperators.cmake)
opkit_add_cuda_target()
opkit_add_standard_operator_targets()
