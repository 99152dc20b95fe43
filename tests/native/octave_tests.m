% Runs Octave's own tests of files that compute in single precision, and prints how many passed.
%
%   octave-cli octave_tests.m         % products and linear algebra
%   octave-cli octave_tests.m --all   % every file

function files = below(folder, pattern)
  files = glob(fullfile(folder, pattern));
  inside = glob(fullfile(folder, '*'));
  for place = 1:numel(inside)
    if isfolder(inside{place})
      files = [files; below(inside{place}, pattern)];
    end
  end
end

own = __octave_config_info__('octtestsdir');
m = __octave_config_info__('fcnfiledir');
if any(strcmp(argv(), '--all'))
  files = [below(own, '*tst'); below(m, '*.m')];
else
  names = {'chol', 'det', 'dot', 'eig', 'gsvd', 'hess', 'inv', 'kron', 'lu', 'mgorth', 'pinv', ...
           'qr', 'schur', 'svd', 'sylvester'};
  some = cellfun(@(name) fullfile(own, 'libinterp/corefcn', [name '.cc-tst']), names, ...
                 'UniformOutput', false);
  files = [glob(some); glob(fullfile(own, 'fixed/diag-perm.tst'));
           glob(fullfile(m, 'linear-algebra/*.m'))];
end
nowhere = fopen('/dev/null', 'w');
for place = 1:numel(files)
  text = fileread(files{place});
  if ! isempty(strfind(text, 'single')) && ! isempty(strfind(text, '%!'))
    [passed, all] = test(files{place}, 'quiet', nowhere);
    printf('%s: %d of %d passed\n', files{place}, passed, all);
  end
end
