#define FMT_HEADER_ONLY
#include <fmt/format.h>

int main() { fmt::print("{} and {:.2f}\n", "text", 1.5); }
