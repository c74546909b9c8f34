package io.github.copilotgrpc;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** Files in a directory of this machine. */
final class DirectoryStore implements FileStore {
	private final Path root; // without symbolic links

	DirectoryStore(Path root) {
		this.root = root;
	}

	/** The path on this machine. Throws AccessDeniedException if it leaves the directory. */
	private Path local(String path) throws IOException {
		Path found = root.resolve(Path.of("/").resolve(path).normalize().toString().substring(1)).normalize();
		Path existing = found;
		while (!Files.exists(existing, LinkOption.NOFOLLOW_LINKS)) {
			existing = existing.getParent();
			if (existing == null) {
				throw new NoSuchFileException(path);
			}
		}
		Path real;
		try {
			real = existing.toRealPath();
		} catch (NoSuchFileException e) { // a link to nothing
			throw new AccessDeniedException(path, null, "a link to nothing");
		}
		if (!found.startsWith(root) || !real.startsWith(root)) {
			throw new AccessDeniedException(path, null, "outside of the directory");
		}
		return found;
	}

	@Override
	public byte[] read(String path) throws IOException {
		return Files.readAllBytes(local(path));
	}

	@Override
	public void write(String path, byte[] data) throws IOException {
		Files.write(local(path), data);
	}

	@Override
	public void append(String path, byte[] data) throws IOException {
		Path file = local(path);
		Files.createDirectories(file.getParent());
		Files.write(file, data, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
	}

	@Override
	public Info stat(String path) throws IOException {
		return info(local(path));
	}

	private static Info info(Path path) throws IOException {
		BasicFileAttributes found = Files.readAttributes(path, BasicFileAttributes.class);
		return new Info(String.valueOf(path.getFileName()), found.isDirectory(), found.size(),
				found.lastModifiedTime().toInstant());
	}

	@Override
	public void makeDirectory(String path, boolean recursive) throws IOException {
		if (recursive) {
			Files.createDirectories(local(path));
		} else {
			Files.createDirectory(local(path));
		}
	}

	@Override
	public List<Info> list(String path) throws IOException {
		List<Info> entries = new ArrayList<>();
		try (Stream<Path> found = Files.list(local(path))) {
			for (Path entry : found.sorted().toList()) {
				entries.add(info(entry));
			}
		}
		return entries;
	}

	@Override
	public void rename(String source, String target) throws IOException {
		Files.move(local(source), local(target), StandardCopyOption.REPLACE_EXISTING);
	}

	@Override
	public void remove(String path, boolean recursive) throws IOException {
		Path target = local(path);
		if (!recursive || !Files.isDirectory(target, LinkOption.NOFOLLOW_LINKS)) {
			Files.delete(target);
			return;
		}
		Files.walkFileTree(target, new SimpleFileVisitor<>() {
			@Override
			public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
				Files.delete(file);
				return FileVisitResult.CONTINUE;
			}

			@Override
			public FileVisitResult postVisitDirectory(Path directory, IOException error) throws IOException {
				if (error != null) {
					throw error;
				}
				Files.delete(directory);
				return FileVisitResult.CONTINUE;
			}
		});
	}
}
