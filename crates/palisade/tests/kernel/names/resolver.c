/* Looks a name up by the C library, as programs do, connects to every address at once, and prints which connections
   opened: one line each, or one with the error. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 256

int main(int count, char **arguments)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found, *at;
    struct pollfd sockets[MOST];
    int n = 0, i, error;

    if (count != 3)
        return 2;
    error = getaddrinfo(arguments[1], arguments[2], &hints, &found);
    if (error) {
        printf("error %s\n", gai_strerror(error));
        return 0;
    }
    for (at = found; at && n < MOST; at = at->ai_next, n++) {
        sockets[n].fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
        sockets[n].events = POLLOUT;
        connect(sockets[n].fd, at->ai_addr, at->ai_addrlen);
    }
    for (at = found, i = 0; i < n; at = at->ai_next, i++) {
        char address[64];
        int failure = 0;
        socklen_t length = sizeof failure;
        /* A first packet that is lost is sent again after a second. */
        int opens = poll(&sockets[i], 1, 700) == 1;
        getsockopt(sockets[i].fd, SOL_SOCKET, SO_ERROR, &failure, &length);
        getnameinfo(at->ai_addr, at->ai_addrlen, address, sizeof address, 0, 0, NI_NUMERICHOST);
        printf("%s %s\n", address, opens && !failure ? "open" : "closed");
    }
    return 0;
}
