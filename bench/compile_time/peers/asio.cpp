#include <asio.hpp>

int main() {
  asio::io_context context;
  asio::steady_timer timer(context, asio::chrono::milliseconds(1));
  timer.async_wait([](const std::error_code&) {});
  context.run();
}
