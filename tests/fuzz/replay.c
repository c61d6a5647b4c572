/* Gives every file of a folder to a fuzz target, without a fuzzer: one TAP case each. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void replay(const char *folder, const char *name, int number)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    if (!f || fseek(f, 0, SEEK_END)) {
        perror(path);
        exit(1);
    }
    long n = ftell(f);
    rewind(f);
    /* Exactly as long as the input, so that a sanitizer sees a read beyond it. */
    uint8_t *data = malloc(n > 0 ? (size_t)n : 1);
    if (n < 0 || !data || fread(data, 1, (size_t)n, f) != (size_t)n) {
        perror(path);
        exit(1);
    }
    fclose(f);
    LLVMFuzzerTestOneInput(data, (size_t)n);
    free(data);
    printf("ok %d - %s\n", number, name);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct dirent **entries;
    int n = argc == 2 ? scandir(argv[1], &entries, NULL, alphasort) : -1, done = 0;
    if (n < 0) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < n; i++) {
        if (*entries[i]->d_name != '.')
            replay(argv[1], entries[i]->d_name, ++done);
        free(entries[i]);
    }
    free(entries);
    printf("1..%d\n", done);
    return done ? 0 : 1; /* an empty corpus proves nothing */
}
