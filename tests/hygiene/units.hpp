// What two translation units of one program see of the toolkit, each from its own copy of every
// header.
#ifndef OPKIT_TESTS_HYGIENE_UNITS_HPP_
#define OPKIT_TESTS_HYGIENE_UNITS_HPP_

#include "all_headers.hpp"

struct Seen {
  const opkit::Allocator* allocator;
  const void* invocation;  // of the calling thread
  void (*fail)();          // throws opkit::Error
};

Seen SeenByA();
Seen SeenByB();

#endif  // OPKIT_TESTS_HYGIENE_UNITS_HPP_
