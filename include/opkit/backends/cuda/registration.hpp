// The registration macros of CUDA operators. Includes no CUDA header, so that a host file can
// register an operator whose class is defined in a .cu file.
#ifndef OPKIT_BACKENDS_CUDA_REGISTRATION_HPP_
#define OPKIT_BACKENDS_CUDA_REGISTRATION_HPP_

#include "opkit/op/registration.hpp"

#define OPKIT_REGISTER_CUDA_OPERATOR(name, ...) \
  OPKIT_REGISTER_DEVICE_OPERATOR(::opkit::DeviceType::kCUDA, name, __VA_ARGS__)
#define OPKIT_REGISTER_CUDA_OPERATOR_STR(string, ...) \
  OPKIT_REGISTER_OPERATOR_STR(::opkit::DeviceType::kCUDA, string, "DEFAULT", __VA_ARGS__)
#define OPKIT_REGISTER_CUDA_OPERATOR_CREATOR(name, ...) \
  OPKIT_REGISTER_OPERATOR_CREATOR(::opkit::DeviceType::kCUDA, name, __VA_ARGS__)
#define OPKIT_REGISTER_CUDA_OPERATOR_WITH_ENGINE(name, engine, ...) \
  OPKIT_REGISTER_OPERATOR(::opkit::DeviceType::kCUDA, name, #engine, kDefault, __VA_ARGS__)
#define OPKIT_REGISTER_CUDA_OPERATOR_WITH_PRIORITY(name, priority, ...)                    \
  OPKIT_REGISTER_DEVICE_OPERATOR_WITH_PRIORITY(::opkit::DeviceType::kCUDA, name, priority, \
                                               __VA_ARGS__)

#ifndef OPKIT_NO_SHORT_MACROS
#define REGISTER_CUDA_OPERATOR(...) OPKIT_REGISTER_CUDA_OPERATOR(__VA_ARGS__)
#define REGISTER_CUDA_OPERATOR_STR(...) OPKIT_REGISTER_CUDA_OPERATOR_STR(__VA_ARGS__)
#define REGISTER_CUDA_OPERATOR_CREATOR(...) OPKIT_REGISTER_CUDA_OPERATOR_CREATOR(__VA_ARGS__)
#define REGISTER_CUDA_OPERATOR_WITH_ENGINE(...) \
  OPKIT_REGISTER_CUDA_OPERATOR_WITH_ENGINE(__VA_ARGS__)
#define REGISTER_CUDA_OPERATOR_WITH_PRIORITY(...) \
  OPKIT_REGISTER_CUDA_OPERATOR_WITH_PRIORITY(__VA_ARGS__)
#endif  // OPKIT_NO_SHORT_MACROS

#endif  // OPKIT_BACKENDS_CUDA_REGISTRATION_HPP_
