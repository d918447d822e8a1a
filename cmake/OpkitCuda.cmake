# opkit::cuda, if a CUDA toolkit is found: the options and libraries for .cu files with opkit
# kernels. The project that uses it calls enable_language(CUDA) before it finds or adds opkit.
function(opkit_add_cuda_target)
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND OR TARGET opkit::cuda)
    return()
  endif()
  add_library(opkit_cuda INTERFACE)
  add_library(opkit::cuda ALIAS opkit_cuda)
  target_link_libraries(opkit_cuda INTERFACE opkit::opkit CUDA::cudart)
  # Kernels are lambdas, arguments of ParallelFor.
  target_compile_options(opkit_cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda>)
  if("cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
    target_compile_features(opkit_cuda INTERFACE cuda_std_20)
  else()  # before 3.26 CMake does not know that nvcc has C++20
    target_compile_options(opkit_cuda INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  endif()
endfunction()
# Enables CUDA for this repository's own programs if there is a compiler. By default their code is for
# compute capability 8.0 and 9.0, and later GPUs compile its PTX when it is loaded.
macro(opkit_enable_cuda)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    enable_language(CUDA)
  endif()
endmacro()
