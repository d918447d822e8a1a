// A library that does not want to be loaded.
#include <opkit/plugin/author.hpp>

int Initialize(int, int) {
  OPKIT_ERROR_MSG << "there is no licence for it";
  return opkit::FAIL;
}
OPKIT_LIBRARY_INITIALIZE(Initialize);
