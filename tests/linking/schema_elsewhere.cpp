#include "opkit/op/registration.hpp"

OPERATOR_SCHEMA(Nothing).NumInputs(0).NumOutputs(0);
